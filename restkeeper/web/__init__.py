"""What an RFC or an operator defines: knows no resource."""
